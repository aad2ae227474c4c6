"""What the machine says of itself: control groups, memory, disks, GPUs, containers. Reads, never decides."""
