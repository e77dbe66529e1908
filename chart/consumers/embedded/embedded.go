// Package embedded gives a tree of embedded files the two functions of go-bindata that K3s calls.
package embedded

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

// Bindata is the files below a folder of an embedded tree.
type Bindata struct {
	FS     embed.FS
	Prefix string
}

// Asset gives the bytes of a file.
func (b Bindata) Asset(name string) ([]byte, error) {
	return b.FS.ReadFile(path.Join(b.Prefix, name))
}

// AssetNames lists all files but hidden ones, sorted.
func (b Bindata) AssetNames() []string {
	var names []string
	// The tree is compiled in: it can be read.
	_ = fs.WalkDir(b.FS, b.Prefix, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), ".") || strings.HasPrefix(entry.Name(), "_") {
			return err
		}
		names = append(names, strings.TrimPrefix(name, b.Prefix+"/"))
		return nil
	})
	return names
}
