// Program dra-driver is a DRA driver whose devices are only names: it publishes them, and prepares a claim by returning the CDI names of
// its devices. Its only argument is the configuration as JSON; it runs until SIGTERM.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// settings is the configuration of the driver, which the test passes.
type settings struct {
	Kubeconfig string `json:"kubeconfig"`
	Node       string `json:"node"`
	Driver     string `json:"driver"`
	// Directory is the directory of the driver's socket for the kubelet.
	Directory string            `json:"directory"`
	Devices   []resource.Device `json:"devices"`
	// Names maps the names of devices to their CDI names.
	Names map[string]string `json:"names"`
	// Files are files that the driver writes on the node, with their contents.
	Files map[string]json.RawMessage `json:"files"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "dra-driver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("one argument, the settings as JSON; got %d", len(arguments))
	}
	var set settings
	if err := json.Unmarshal([]byte(arguments[0]), &set); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", set.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := describe(set.Files); err != nil {
		return err
	}
	if err := os.MkdirAll(set.Directory, 0o755); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, driver{set},
		kubeletplugin.KubeClient(client),
		kubeletplugin.NodeName(set.Node),
		kubeletplugin.DriverName(set.Driver),
		kubeletplugin.PluginDataDirectoryPath(set.Directory),
	)
	if err != nil {
		return err
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: set.Devices}}}
	resources := resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{set.Node: pool}}
	if err := helper.PublishResources(ctx, resources); err != nil {
		return err
	}
	<-ctx.Done()
	helper.Stop()
	return nil
}

// describe writes the CDI file and the device information files.
func describe(files map[string]json.RawMessage) error {
	for path, content := range files {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

type driver struct{ set settings }

// PrepareResourceClaims returns the CDI names of the devices; there is nothing to prepare on the node.
func (d driver) PrepareResourceClaims(_ context.Context, claims []*resource.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	prepared := make(map[types.UID]kubeletplugin.PrepareResult)
	for _, claim := range claims {
		var devices []kubeletplugin.Device
		for _, allocated := range claim.Status.Allocation.Devices.Results {
			if allocated.Driver != d.set.Driver {
				continue
			}
			devices = append(devices, kubeletplugin.Device{
				Requests:     []string{allocated.Request},
				PoolName:     allocated.Pool,
				DeviceName:   allocated.Device,
				CDIDeviceIDs: []string{d.set.Names[allocated.Device]},
			})
		}
		prepared[claim.UID] = kubeletplugin.PrepareResult{Devices: devices}
	}
	return prepared, nil
}

// UnprepareResourceClaims has nothing to undo.
func (d driver) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	undone := make(map[types.UID]error)
	for _, claim := range claims {
		undone[claim.UID] = nil
	}
	return undone, nil
}

// HandleError logs an error; the helper retries to publish.
func (d driver) HandleError(_ context.Context, err error, what string) {
	fmt.Fprintln(os.Stderr, "dra-driver:", what, err)
}
