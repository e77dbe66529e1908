//go:build tools

// This file pins the programs of KubeVirt that the end-to-end tests run: its webhooks and its controller, and the CNI plugin of a network binding.
package main

import (
	_ "kubevirt.io/kubevirt/cmd/cniplugins/passt-binding/cmd"
	_ "kubevirt.io/kubevirt/cmd/virt-api"
	_ "kubevirt.io/kubevirt/cmd/virt-controller"
)
