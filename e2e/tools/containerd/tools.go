//go:build tools

// Package tools pins the containerd that speaks CNI 1.1, and CNI's own small runtime.
package tools

import (
	_ "github.com/containerd/containerd/v2/cmd/containerd"
	_ "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"
	_ "github.com/containerd/containerd/v2/cmd/ctr"
	_ "github.com/containernetworking/cni/cnitool"
)
