//go:build tools

// Package tools pins the program with which k3s-charts makes its charts of packages.
package tools

import (
	_ "github.com/rancher/charts-build-scripts"
)
