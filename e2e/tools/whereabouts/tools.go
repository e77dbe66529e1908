//go:build tools

// Package tools pins whereabouts, at whose pools our daemons are guests.
package tools

import (
	_ "github.com/k8snetworkplumbingwg/whereabouts/cmd"
)
