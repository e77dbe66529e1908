// Package choice answers what the reference chooses: it is put beside the reference's own packages and built with them.
package choice

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/k8snetworkplumbingwg/whereabouts/pkg/allocate"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/config"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/storage/kubernetes"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/types"
)

// A definition, and the addresses of each range that pods have.
type question struct {
	Config json.RawMessage `json:"config"`
	Taken  [][]string      `json:"taken"`
}

// The pool and the address of each range. An empty address is none; a definition that is refused has a reason.
type answer struct {
	Pools     []string `json:"pools"`
	Addresses []string `json:"addresses"`
	Refused   string   `json:"refused"`
}

func TestChoices(t *testing.T) {
	flat := filepath.Join(t.TempDir(), "whereabouts.conf")
	if err := os.WriteFile(flat, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(os.Getenv("QUESTIONS"))
	if err != nil {
		t.Fatal(err)
	}
	var questions []question
	if err := json.Unmarshal(text, &questions); err != nil {
		t.Fatal(err)
	}
	answers := []answer{}
	for _, one := range questions {
		answers = append(answers, choose(one, flat))
	}
	if text, err = json.Marshal(answers); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(os.Getenv("ANSWERS"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func choose(of question, flat string) answer {
	ipam, _, err := config.LoadIPAMConfig(of.Config, "", flat)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	chosen := answer{}
	for at, one := range ipam.IPRanges {
		pool := kubernetes.PoolIdentifier{IpRange: one.Range, NetworkName: ipam.NetworkName}
		chosen.Pools = append(chosen.Pools, kubernetes.IPPoolName(pool))
		taken := []types.IPReservation{}
		for _, address := range of.Taken[at] {
			taken = append(taken, types.IPReservation{IP: net.ParseIP(address), ContainerID: "other", PodRef: "shop/other", IfName: "net1"})
		}
		given, _, err := allocate.AssignIP(one, taken, "own", "shop/own", "net1")
		address := ""
		if err == nil {
			address = given.String()
		}
		chosen.Addresses = append(chosen.Addresses, address)
	}
	return chosen
}
