//go:build no_stage
// +build no_stage

// Package static is empty where a distro stages nothing by itself.
package static

import "fmt"

// Asset knows no name.
func Asset(name string) ([]byte, error) {
	return nil, fmt.Errorf("Asset %s not found", name)
}

// AssetNames lists nothing.
func AssetNames() []string {
	return nil
}
