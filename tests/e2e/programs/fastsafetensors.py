"""`SafeTensorsFileLoader` on the CPU, all tensors."""

PACKAGE, REQUIRES, EQUAL = "fastsafetensors", ["fastsafetensors==0.5.0"], "bytes"


def read(directory, scratch):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), "cpu", nogds=True)
    loader.add_filenames({0: [f"{directory}/model.safetensors"]})
    held = loader.copy_files_to_device()
    return {name: held.get_tensor(name).clone() for name in loader.get_keys()}
