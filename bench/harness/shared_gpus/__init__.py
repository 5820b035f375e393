"""The experiment of "Beware of Fragmentation" (USENIX ATC 2023): pods that share GPUs, placed one by one."""
