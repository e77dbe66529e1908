//go:build tools

// Package tools pins the controller that turns HelmChart objects into jobs, as K3s and RKE2 have it.
package tools

import (
	_ "github.com/k3s-io/helm-controller"
)
