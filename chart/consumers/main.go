// A small server that handles the charts as K3s does: it stages charts and manifests below its data directory and serves the
// charts to all clients. It contains them twice, as go-bindata's source and as an embedded tree, to show both.
package main

import (
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	bindatadeploy "distro.invalid/consumer/bindata/deploy"
	bindatastatic "distro.invalid/consumer/bindata/static"
	embeddeploy "distro.invalid/consumer/embedded/deploy"
	embedstatic "distro.invalid/consumer/embedded/static"
)

//go:generate make generate

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	dataDir := flag.String("data-dir", "", "directory to stage below")
	multus := flag.Bool("multus", false, "install Multus")
	disable := flag.String("disable", "", "packaged components that are not staged, separated by commas")
	registry := flag.String("system-default-registry", "", "registry that images come from")
	disableAgent := flag.Bool("disable-agent", false, "this server runs no agent")
	from := flag.String("from", "embed", "embed or bindata")
	listen := flag.String("listen", "", "address to serve the charts on; without it nothing is served")
	flag.Parse()
	if *dataDir == "" {
		return fmt.Errorf("name a directory: --data-dir DIR")
	}
	sources := map[string][2]source{
		"embed":   {embedstatic.Assets, embeddeploy.Assets},
		"bindata": {functions{bindatastatic.Asset, bindatastatic.AssetNames}, functions{bindatadeploy.Asset, bindatadeploy.AssetNames}},
	}
	found, ok := sources[*from]
	if !ok {
		return fmt.Errorf("--from %s: write embed or bindata", *from)
	}
	// Multus is off unless the flag is given.
	skips := map[string]bool{"multus": !*multus}
	for _, name := range strings.Split(*disable, ",") {
		if name = strings.TrimSpace(name); name != "" {
			skips[name] = true
		}
	}
	static := filepath.Join(*dataDir, "server", "static")
	if err := stageStatic(found[0], static); err != nil {
		return err
	}
	if err := stageManifests(found[1], filepath.Join(*dataDir, "server", "manifests"), variables(*registry, *disableAgent), skips); err != nil {
		return err
	}
	if *listen == "" {
		return nil
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Printf("serving http://%s/static/\n", listener.Addr())
	// No authentication, as in K3s: the charts contain no secret.
	http.Handle("/static/", http.StripPrefix("/static/", http.FileServer(http.Dir(static))))
	return http.Serve(listener, nil)
}
