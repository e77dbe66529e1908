package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// source has the functions of assets that K3s calls.
type source interface {
	Asset(name string) ([]byte, error)
	AssetNames() []string
}

// functions are the assets of a go-bindata source.
type functions struct {
	asset func(string) ([]byte, error)
	names func() []string
}

func (f functions) Asset(name string) ([]byte, error) { return f.asset(name) }
func (f functions) AssetNames() []string              { return f.names() }

// variables returns the variables that K3s replaces in manifests; the job that installs a chart replaces %{KUBERNETES_API}%.
// On a server without an agent the jobs run on other nodes, so the line that binds them to a server's node is replaced too.
func variables(registry string, disableAgent bool) map[string]string {
	prefix := registry
	if registry != "" {
		prefix += "/"
	}
	all := map[string]string{
		"%{SYSTEM_DEFAULT_REGISTRY}%":     prefix,
		"%{SYSTEM_DEFAULT_REGISTRY_RAW}%": registry,
	}
	if disableAgent {
		all["  bootstrap: true\n"] = ""
	}
	return all
}

// stageStatic writes all charts, at each start.
func stageStatic(from source, dir string) error {
	for _, name := range from.AssetNames() {
		content, err := from.Asset(name)
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return nil
}

// stageManifests writes the manifests that are not skipped, with their variables replaced.
func stageManifests(from source, dir string, variables map[string]string, skips map[string]bool) error {
	for _, name := range from.AssetNames() {
		if isSkipped(name, skips) {
			continue
		}
		content, err := from.Asset(name)
		if err != nil {
			return err
		}
		for key, value := range variables {
			content = bytes.ReplaceAll(content, []byte(key), []byte(value))
		}
		if err := write(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return nil
}

// isSkipped returns true when a manifest is disabled by its name, by its name without the extension, or by a directory above it.
func isSkipped(name string, skips map[string]bool) bool {
	base := filepath.Base(name)
	if skips[name] || skips[base] || skips[strings.TrimSuffix(base, filepath.Ext(base))] {
		return true
	}
	for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
		if skips[dir] || skips[filepath.Base(dir)] {
			return true
		}
	}
	return false
}

func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	fmt.Println("staged", path)
	return nil
}
