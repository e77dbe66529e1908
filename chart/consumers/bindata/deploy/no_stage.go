//go:build no_stage
// +build no_stage

// Package deploy is empty in a distro that stages no manifests.
package deploy

import "fmt"

// Asset fails, since there are no assets.
func Asset(name string) ([]byte, error) {
	return nil, fmt.Errorf("Asset %s not found", name)
}

// AssetNames returns no names.
func AssetNames() []string {
	return nil
}
