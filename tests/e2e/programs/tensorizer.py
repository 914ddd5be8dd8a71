"""`TensorSerializer` writes the model that transformers loaded, `TensorDeserializer` reads it."""

PACKAGE, EQUAL = "tensorizer", "bytes"
REQUIRES = ["boto3==1.44.5", "botocore==1.44.5", "hiredis==3.5.0", "jmespath==1.1.0", "libnacl==2.1.0",
            "protobuf==7.36.2", "python-dateutil==2.9.0.post0", "redis==8.1.0", "s3transfer==0.19.3", "six==1.17.0",
            "tensorizer==2.12.1", "urllib3==2.8.0"]


def read(directory, scratch):
    from tensorizer import TensorDeserializer, TensorSerializer
    from transformers import AutoModelForCausalLM

    writer = TensorSerializer(f"{scratch}/model.tensors")
    writer.write_module(AutoModelForCausalLM.from_pretrained(directory))
    writer.close()
    with TensorDeserializer(f"{scratch}/model.tensors", device="cpu") as held:
        return {name: held[name].clone() for name in held.keys()}
