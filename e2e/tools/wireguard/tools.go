//go:build tools

// Package tools pins WireGuard in a program, for machines whose kernel has none.
package tools

import (
	_ "golang.zx2c4.com/wireguard"
)
