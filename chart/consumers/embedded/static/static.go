// Package static contains the charts that are served to the cluster.
package static

import (
	"embed"

	"distro.invalid/consumer/embedded"
)

//go:embed embed/*
var tree embed.FS

// Assets are the files below embed/.
var Assets = embedded.Bindata{FS: tree, Prefix: "embed"}
