// Program vpn-control is the control server of a tailnet with a relay and STUN, made of the packages that the VPN's own tests use. It takes
// one key, keeps everything in memory, and offers a route to other nodes only when the test has approved it. As real servers do, and the
// one of these packages does not, it takes a node that it knows without a key.
//
// The test reads and changes the tailnet by HTTP: GET /e2e/nodes, POST /e2e/routes?node=NAME&routes=CIDR,CIDR, POST
// /e2e/expiry?node=NAME&days=COUNT, where 0 means never.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"tailscale.com/control/controlhttp/controlhttpserver"
	"tailscale.com/derp/derpserver"
	"tailscale.com/net/stun"
	"tailscale.com/tailcfg"
	"tailscale.com/tstest/integration/testcontrol"
	"tailscale.com/types/dnstype"
	"tailscale.com/types/key"
)

const (
	controlPort = 8080
	relayPort   = 8443
	stunPort    = 3478

	domain = "tailnet.invalid"
)

func main() {
	address := flag.String("address", "", "address of this machine for the nodes")
	auth := flag.String("auth-key-file", "", "file with the only key that nodes may join with")
	flag.Parse()
	if err := run(*address, *auth); err != nil {
		fmt.Fprintln(os.Stderr, "vpn-control:", err)
		os.Exit(1)
	}
}

func run(address, auth string) error {
	secret, err := os.ReadFile(auth)
	if err != nil {
		return err
	}
	if err := relay(address); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	if err := answerStun(address); err != nil {
		return fmt.Errorf("STUN: %w", err)
	}
	region := &tailcfg.DERPRegion{RegionID: 1, RegionCode: "e2e", Nodes: []*tailcfg.DERPNode{{
		Name: "1", RegionID: 1, HostName: address, IPv4: address, IPv6: "none",
		STUNPort: stunPort, STUNTestIP: address, DERPPort: relayPort, InsecureForTests: true,
	}}}
	origin := net.JoinHostPort(address, strconv.Itoa(controlPort))
	control := &testcontrol.Server{
		DERPMap:         &tailcfg.DERPMap{Regions: map[int]*tailcfg.DERPRegion{1: region}},
		RequireAuthKey:  strings.TrimSpace(string(secret)),
		ExplicitBaseURL: "http://" + origin,
		MagicDNSDomain:  domain,
		// A node that takes DNS settings writes MagicDNS' server into its resolv.conf. The server behind it is never reached.
		DNSConfig: &tailcfg.DNSConfig{
			Proxied:   true,
			Domains:   []string{domain},
			Resolvers: []*dnstype.Resolver{{Addr: "192.0.2.53"}},
		},
		AllNodesSameUser: true,
		AllOnline:        true,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /e2e/nodes", func(response http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(response).Encode(control.AllNodes())
	})
	mux.HandleFunc("POST /e2e/routes", func(response http.ResponseWriter, request *http.Request) {
		if err := approve(control, request.FormValue("node"), request.FormValue("routes")); err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("POST /e2e/expiry", func(response http.ResponseWriter, request *http.Request) {
		if err := setExpiry(control, request.FormValue("node"), request.FormValue("days")); err != nil {
			http.Error(response, err.Error(), http.StatusBadRequest)
		}
	})
	front(mux, control)
	mux.Handle("/", control)
	return http.ListenAndServe(origin, mux)
}

// front serves the nodes' encrypted connections in the place of the control server, which sees what is inside them.
func front(mux *http.ServeMux, control *testcontrol.Server) {
	private := key.NewMachine()
	mux.HandleFunc("GET /key", func(response http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(response).Encode(&tailcfg.OverTLSPublicKeyResponse{PublicKey: private.Public()})
	})
	mux.HandleFunc("/ts2021", func(response http.ResponseWriter, request *http.Request) {
		connection, err := controlhttpserver.AcceptHTTP(request.Context(), response, request, private, nil)
		if err != nil {
			log.Printf("cannot accept a node: %v", err)
			return
		}
		defer connection.Close()
		inner := func(response http.ResponseWriter, request *http.Request) {
			if request.URL.Path == "/machine/register" {
				if err := vouch(control, request); err != nil {
					http.Error(response, err.Error(), http.StatusBadRequest)
					return
				}
			}
			control.ServeHTTP(response, request)
		}
		new(http2.Server).ServeConn(connection, &http2.ServeConnOpts{
			Context:    ofMachine{request.Context(), connection.Peer()},
			BaseConfig: &http.Server{Handler: http.HandlerFunc(inner)},
		})
	})
}

// ofMachine is the context of a connection. The control server looks up the machine's key in it by a type that only its package can name.
type ofMachine struct {
	context.Context
	key key.MachinePublic
}

func (machine ofMachine) Value(name any) any {
	if fmt.Sprintf("%T", name) == "testcontrol.peerMachinePublicContextKey" {
		return machine.key
	}
	return machine.Context.Value(name)
}

// vouch adds the key for joining to the registration of a node that the control server knows.
func vouch(control *testcontrol.Server, request *http.Request) error {
	var register tailcfg.RegisterRequest
	if err := json.NewDecoder(request.Body).Decode(&register); err != nil {
		return err
	}
	if control.Node(register.NodeKey) != nil && register.Auth == nil {
		register.Auth = &tailcfg.RegisterResponseAuth{AuthKey: control.RequireAuthKey}
	}
	body, err := json.Marshal(&register)
	request.Body = io.NopCloser(bytes.NewReader(body))
	return err
}

// approve makes exactly these routes of a node, by its host name, known to all nodes.
func approve(control *testcontrol.Server, name, routes string) error {
	var prefixes []netip.Prefix
	for _, text := range strings.FieldsFunc(routes, func(letter rune) bool { return letter == ',' }) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return err
		}
		prefixes = append(prefixes, prefix)
	}
	node, err := find(control, name)
	if err != nil {
		return err
	}
	control.SetSubnetRoutes(node.Key, prefixes)
	return nil
}

// setExpiry lets the key of a node, by its host name, expire in so many days, or never.
func setExpiry(control *testcontrol.Server, name, days string) error {
	count, err := strconv.Atoi(days)
	if err != nil {
		return err
	}
	node, err := find(control, name)
	if err != nil {
		return err
	}
	node.KeyExpiry = time.Time{}
	if count > 0 {
		node.KeyExpiry = time.Now().Add(time.Duration(count) * 24 * time.Hour)
	}
	control.UpdateNode(node)
	return nil
}

// find returns a copy of the node with this host name.
func find(control *testcontrol.Server, name string) (*tailcfg.Node, error) {
	for _, node := range control.AllNodes() {
		if node.Hostinfo.Hostname() == name {
			return node, nil
		}
	}
	return nil, fmt.Errorf("no node has the host name %q", name)
}

// relay serves the relay of nodes without a direct path.
func relay(address string) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(relayPort)))
	if err != nil {
		return err
	}
	server := httptest.NewUnstartedServer(derpserver.Handler(derpserver.New(key.NewNode(), log.Printf)))
	_ = server.Listener.Close()
	server.Listener = listener
	// The relay takes over connections, which HTTP/2 does not allow.
	server.Config.TLSNextProto = make(map[string]func(*http.Server, *tls.Conn, http.Handler))
	server.StartTLS()
	return nil
}

// answerStun tells nodes from which address their packets come.
func answerStun(address string) error {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(address), Port: stunPort})
	if err != nil {
		return err
	}
	go func() {
		packet := make([]byte, 1500)
		for {
			length, from, err := socket.ReadFromUDPAddrPort(packet)
			if err != nil {
				return
			}
			if id, err := stun.ParseBindingRequest(packet[:length]); err == nil {
				_, _ = socket.WriteToUDPAddrPort(stun.Response(id, from), from)
			}
		}
	}()
	return nil
}
