"""What torch_dist.py makes, written as Megatron-Core writes it, by a process for each file:

    torchrun --nproc_per_node=2 torch_dist_processes.py OUT CASE...
"""

import torch_dist

if __name__ == "__main__":
    from megatron.core.dist_checkpointing.strategies.filesystem_async import FileSystemWriterAsync

    torch_dist.write_here = FileSystemWriterAsync.write_preloaded_data_multiproc
    torch_dist.run_all(torch_dist.run)
