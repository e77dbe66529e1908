module distro.invalid/consumer

go 1.21
