//go:build tools

// Package tools pins the VPN's programs.
package tools

import (
	_ "tailscale.com/cmd/tailscale"
	_ "tailscale.com/cmd/tailscaled"
)
