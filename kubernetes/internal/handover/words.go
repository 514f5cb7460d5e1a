// Package handover brings leases and their keys from the controller to the nodes.
package handover

import (
	"time"

	"outboard.dev/dra/internal/broker"
)

const (
	// Audience is whom a node's token is for: it is of no use at the API server.
	Audience = "outboard.dev"
	// ConfigMap is where the controller says where it is, and by which certificate it is known.
	ConfigMap = "outboard-dra"
	// CertificateKey is the certificate's place there.
	CertificateKey = "controller.crt"
	// AddressKey is the address's place there.
	AddressKey = "address"

	path = "/v1/claims/"
)

// Handover is what a node gets of a claim.
type Handover struct {
	Number  uint64         `json:"number"`
	Lease   string         `json:"lease"`
	Key     string         `json:"key"`
	Servers []broker.Reach `json:"servers"`
	Expires time.Time      `json:"expires"`
	// User is as whom the pod's containers run, if the pod says so.
	User *int64 `json:"user,omitempty"`
}
