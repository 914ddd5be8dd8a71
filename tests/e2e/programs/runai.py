"""Run:ai's `SafetensorsStreamer`, all tensors."""

PACKAGE, EQUAL = "runai-model-streamer", "bytes"
REQUIRES = ["humanize==4.17.0", "runai-model-streamer==0.17.0"]


def read(directory, scratch):
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(f"{directory}/model.safetensors")
        return {name: tensor.clone() for name, tensor in streamer.get_tensors()}
