module multus-rs.invalid/e2e/tools/guest-kernel

go 1.26.6

require github.com/gokrazy/kernel.amd64 v0.0.0-20260705070735-de680abf072b
