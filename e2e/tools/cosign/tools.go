//go:build tools

// Package tools pins the program with which people verify the signatures of images.
package tools

import (
	_ "github.com/sigstore/cosign/v3/cmd/cosign"
)
