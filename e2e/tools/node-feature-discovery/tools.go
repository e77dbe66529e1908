//go:build tools

// Package tools pins Node Feature Discovery, which reads what daemons publish as features.
package tools

import (
	_ "sigs.k8s.io/node-feature-discovery/cmd/nfd-master"
	_ "sigs.k8s.io/node-feature-discovery/cmd/nfd-worker"
)
