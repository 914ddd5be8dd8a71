"""`TasksManager.get_model_from_task`, one forward pass."""

PACKAGE, EQUAL = "optimum", "logits"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "optimum==2.3.0",
            "requests==2.34.2", "urllib3==2.8.0"]


def logits(model):
    import torch

    ids = torch.arange(12).reshape(2, 6) + 3
    with torch.no_grad():
        return {"logits": model(input_ids=ids).logits}


def read(directory, scratch):
    from optimum.exporters.tasks import TasksManager

    return logits(TasksManager.get_model_from_task("text-generation", directory, framework="pt"))
