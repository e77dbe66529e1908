//go:build tools

// Package tools pins the client that finds what is attached to an image in a registry.
package tools

import (
	_ "oras.land/oras/cmd/oras"
)
