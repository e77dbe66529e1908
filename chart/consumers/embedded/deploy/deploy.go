// Package deploy contains the manifests that are deployed to the cluster.
package deploy

import (
	"embed"

	"distro.invalid/consumer/embedded"
)

//go:embed embed/*
var tree embed.FS

// Assets are the files below embed/.
var Assets = embedded.Bindata{FS: tree, Prefix: "embed"}
