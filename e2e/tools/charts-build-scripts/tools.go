//go:build tools

// Package tools pins the program with which rke2-charts makes its charts from packages.
package tools

import (
	_ "github.com/rancher/charts-build-scripts"
)
