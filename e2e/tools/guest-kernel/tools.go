//go:build tools

// Package tools pins the kernel of guests, a file of its module.
package tools

import (
	_ "github.com/gokrazy/kernel.amd64"
)
