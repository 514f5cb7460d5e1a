// Package broker asks the broker of a pool, over HTTPS.
package broker

import "time"

// Pool is what the broker shows of its pool.
type Pool struct {
	Servers []Server `json:"servers"`
	Leases  []Lease  `json:"leases"`
	// After what the next page goes on, if there is one.
	Next string `json:"next"`
}

// Server is a server of the pool.
type Server struct {
	Name      string            `json:"name"`
	Driver    string            `json:"driver"`
	Labels    map[string]string `json:"labels"`
	Condition string            `json:"condition"`
	Devices   []Device          `json:"devices"`
}

// Conditions of a server.
const (
	Draining = "draining"
	Silent   = "silent"
)

// Ill is the health of a device that has failed.
const Ill = "ill"

// Device is a device of a server.
type Device struct {
	UUID       string     `json:"uuid"`
	Model      string     `json:"model"`
	Capability Capability `json:"capability"`
	Memory     uint64     `json:"memory_bytes"`
	Health     string     `json:"health"`
}

// Capability is a CUDA compute capability.
type Capability struct {
	Major uint16 `json:"major"`
	Minor uint16 `json:"minor"`
}

// Lease is who has what.
type Lease struct {
	Number  uint64    `json:"number"`
	Owner   string    `json:"owner"`
	AskedBy string    `json:"asked_by"`
	Purpose string    `json:"purpose"`
	Expires time.Time `json:"expires"`
	Over    *string   `json:"over"`
	Devices []Granted `json:"devices"`
}

// Granted is a device of a lease, or a part of it.
type Granted struct {
	Server string `json:"server"`
	Device string `json:"device"`
	Memory uint64 `json:"memory_bytes"`
	Usage  Usage  `json:"usage"`
}

// Me is whom the broker takes us for.
type Me struct {
	Owner string `json:"owner"`
	Role  string `json:"role"`
}

// Exact names a device of a server.
type Exact struct {
	Server string `json:"server"`
	Device string `json:"device"`
}

// Ask asks for a lease.
type Ask struct {
	Request     Request `json:"request"`
	ClientKey   string  `json:"client_key"`
	Purpose     string  `json:"purpose"`
	LifeSeconds uint32  `json:"life_seconds"`
}

// Request is what is wanted.
type Request struct {
	Owner       string  `json:"owner"`
	Group       string  `json:"group"`
	Devices     int     `json:"devices"`
	Memory      uint64  `json:"memory_bytes"`
	Usage       Usage   `json:"usage"`
	Model       *string `json:"model"`
	Capability  *string `json:"capability"`
	Servers     string  `json:"servers"`
	Near        *string `json:"near"`
	MayShare    string  `json:"may_share"`
	Priority    uint8   `json:"priority"`
	WaitSeconds uint32  `json:"wait_seconds"`
	Only        []Exact `json:"only,omitempty"`
}

// Standing is how a request stands.
type Standing struct {
	Standing string `json:"standing"`
	Grant
	Place   uint32 `json:"place"`
	Because string `json:"because"`
}

// IsGranted says whether the request has what it asked for.
func (s *Standing) IsGranted() bool { return s.Standing == "granted" }

// Grant is a lease, and where its devices are.
type Grant struct {
	Token          string    `json:"token"`
	Number         uint64    `json:"number"`
	Servers        []Reach   `json:"servers"`
	Expires        time.Time `json:"expires"`
	RenewableUntil time.Time `json:"renewable_until"`
}

// Reach is a server of a lease.
type Reach struct {
	Name        string   `json:"name"`
	Address     string   `json:"address"`
	Fingerprint *string  `json:"fingerprint"`
	Devices     []string `json:"devices"`
}
