//go:build no_stage
// +build no_stage

// Package static is empty in a distro that stages no charts.
package static

import "fmt"

// Asset fails, since there are no assets.
func Asset(name string) ([]byte, error) {
	return nil, fmt.Errorf("Asset %s not found", name)
}

// AssetNames returns no names.
func AssetNames() []string {
	return nil
}
