// Package embedded adds the two functions of go-bindata that K3s calls to a tree of embedded files.
package embedded

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

// Bindata provides the files below a directory of an embedded tree.
type Bindata struct {
	FS     embed.FS
	Prefix string
}

// Asset returns the content of a file.
func (b Bindata) Asset(name string) ([]byte, error) {
	return b.FS.ReadFile(path.Join(b.Prefix, name))
}

// AssetNames returns the names of all files except hidden ones, sorted.
func (b Bindata) AssetNames() []string {
	var names []string
	// The tree is compiled in, so reading it cannot fail.
	_ = fs.WalkDir(b.FS, b.Prefix, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), ".") || strings.HasPrefix(entry.Name(), "_") {
			return err
		}
		names = append(names, strings.TrimPrefix(name, b.Prefix+"/"))
		return nil
	})
	return names
}
