// Reads images as the agents of K3s and RKE2 do, with the libraries that they use, and prints the digest of the configuration of each.
//
// With "mirror" the images are pulled by a registries.yaml; with "archives" they are found in a directory of image archives.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/rancher/wharfie/pkg/registries"
	"github.com/rancher/wharfie/pkg/tarfile"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: mirror-reader mirror|archives PATH IMAGE...")
		os.Exit(2)
	}
	for _, image := range os.Args[3:] {
		digest, err := read(os.Args[1], os.Args[2], image)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", image, err)
			os.Exit(1)
		}
		fmt.Println(digest)
	}
}

func read(way, path, image string) (*v1.Hash, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return nil, err
	}
	found, err := find(way, path, ref)
	if err != nil {
		return nil, err
	}
	layers, err := found.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		if err := check(layer); err != nil {
			return nil, err
		}
	}
	digest, err := found.ConfigName()
	return &digest, err
}

// check reads a layer, which must be the one that the configuration names.
func check(layer v1.Layer) error {
	expected, err := layer.DiffID()
	if err != nil {
		return err
	}
	content, err := layer.Uncompressed()
	if err != nil {
		return err
	}
	defer content.Close()
	digest, _, err := v1.SHA256(content)
	if err == nil && digest != expected {
		err = fmt.Errorf("a layer is %s, not %s", digest, expected)
	}
	return err
}

func find(way, path string, ref name.Reference) (v1.Image, error) {
	if way == "archives" {
		return tarfile.FindImage(path, ref)
	}
	mirrors, err := registries.GetPrivateRegistries(path)
	if err != nil {
		return nil, err
	}
	platform := v1.Platform{OS: "linux", Architecture: runtime.GOARCH}
	return mirrors.Image(ref, remote.WithPlatform(platform))
}
