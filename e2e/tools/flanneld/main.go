// Program flanneld runs flannel with the back ends that K3s links, as K3s' agent does: the settings are arguments, and the node's object has
// its pod subnet. It runs until SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/extension"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
)

// settings are the arguments; the name of the node is in the environment variable NODE_NAME, where flannel looks for it.
type settings struct {
	kubeconfig, network, link, address, environment string
}

func main() {
	var set settings
	flag.StringVar(&set.kubeconfig, "kubeconfig", "", "credentials of the node")
	flag.StringVar(&set.network, "network", "", "flannel's network configuration, net-conf.json")
	flag.StringVar(&set.link, "interface", "", "interface that leads to the other nodes")
	flag.StringVar(&set.address, "address", "", "addresses on that interface, one of each family, between commas")
	flag.StringVar(&set.environment, "environment", "", "file to write for CNI plugins, subnet.env")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, set); err != nil {
		fmt.Fprintln(os.Stderr, "flanneld:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, set settings) error {
	outside, err := external(set)
	if err != nil {
		return err
	}
	leases, err := kube.NewSubnetManager(ctx, "", set.kubeconfig, "flannel.alpha.coreos.com", set.network, false)
	if err != nil {
		return fmt.Errorf("leases: %w", err)
	}
	config, err := leases.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", set.network, err)
	}
	kind, err := backend.NewManager(ctx, leases, outside).GetBackend(config.BackendType)
	if err != nil {
		return fmt.Errorf("back end %q: %w", config.BackendType, err)
	}
	var running sync.WaitGroup
	network, err := kind.RegisterNetwork(ctx, &running, config)
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	lease := network.Lease()
	if err := subnet.WriteSubnetFile(set.environment, config, true, lease.Subnet, lease.IPv6Subnet, network.MTU()); err != nil {
		return fmt.Errorf("%s: %w", set.environment, err)
	}
	fmt.Fprintf(os.Stderr, "flanneld: subnet %s, MTU %d\n", lease.Subnet, network.MTU())
	network.Run(ctx)
	running.Wait()
	return nil
}

// external describes the interface to the other nodes.
func external(set settings) (*backend.ExternalInterface, error) {
	link, err := net.InterfaceByName(set.link)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", set.link, err)
	}
	outside := &backend.ExternalInterface{Iface: link, IfaceName: set.link}
	for _, text := range strings.Split(set.address, ",") {
		address := net.ParseIP(text)
		if address == nil {
			return nil, fmt.Errorf("%q is no address", text)
		}
		if address.To4() != nil {
			outside.IfaceAddr, outside.ExtAddr = address, address
		} else {
			outside.IfaceV6Addr, outside.ExtV6Addr = address, address
		}
	}
	return outside, nil
}
