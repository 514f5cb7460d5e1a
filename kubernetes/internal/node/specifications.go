package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/handover"
)

const (
	vendor = "outboard.dev"
	class  = "claim"
	// version is the oldest of the specification that allows names that begin with a digit.
	version = "0.5.0"
	// prefix is the installation's path in a container, as of `outboard cdi generate`.
	prefix = "/opt/outboard"
	// credentials is the path of lease and key there.
	credentials = prefix + "/credentials"
)

// Specifications says to container engines what a container gets with a claim.
type Specifications struct {
	cache *cdi.Cache
	// install is the folder of the node with Outboard's bin and lib.
	install string
	// libraries are further folders of libraries for programs in containers.
	libraries string
}

// NewSpecifications writes into a folder that container engines read.
func NewSpecifications(folder, install, libraries string) (*Specifications, error) {
	client := filepath.Join(install, "lib/outboard/client/libcuda.so.1")
	if _, err := os.Stat(client); err != nil {
		return nil, fmt.Errorf("containers are to get the client of %s: %w", install, err)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(folder), cdi.WithAutoRefresh(false))
	return &Specifications{cache, install, libraries}, err
}

// Put writes a claim's specification, and gives the device's name in it.
func (s *Specifications) Put(
	uid types.UID, folder string, what *handover.Handover,
) (string, error) {
	variables, err := environment(what.Servers)
	if err != nil {
		return "", err
	}
	client := prefix + "/lib/outboard/client"
	variables = append(variables,
		"LD_LIBRARY_PATH="+strings.TrimSuffix(client+":"+s.libraries, ":"),
		"LD_PRELOAD="+client+"/libnccl.so.2:"+client+"/libcufile.so.0",
		"TRITON_LIBCUDA_PATH="+client)
	mounts := []*specs.Mount{
		mount(filepath.Join(s.install, "lib/outboard/client"), client),
		mount(filepath.Join(s.install, "bin/outboard"), prefix+"/bin/outboard"),
		mount(folder, credentials),
	}
	if python := filepath.Join(s.install, "lib/outboard/python"); exists(python) {
		mounts = append(mounts, mount(python, prefix+"/lib/outboard/python"))
		variables = append(variables, "PYTHONPATH="+prefix+"/lib/outboard/python")
	}
	spec := &specs.Spec{
		Version: version,
		Kind:    vendor + "/" + class,
		Devices: []specs.Device{{
			Name:           string(uid),
			ContainerEdits: specs.ContainerEdits{Env: variables, Mounts: mounts},
		}},
	}
	if err := s.cache.WriteSpec(spec, file(uid)); err != nil {
		return "", fmt.Errorf("container engines cannot be told of the claim: %w", err)
	}
	return parser.QualifiedName(vendor, class, string(uid)), nil
}

// Remove removes a claim's specification. It is no error if there is none.
func (s *Specifications) Remove(uid types.UID) error {
	err := s.cache.RemoveSpec(file(uid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func file(uid types.UID) string {
	return cdi.GenerateTransientSpecName(vendor, class, string(uid))
}

// environment is how a program finds its servers and shows them the lease.
func environment(servers []broker.Reach) ([]string, error) {
	lease, key := credentials+"/"+leaseFile, credentials+"/"+keyFile
	own := make(map[string]map[string]string, len(servers))
	addresses := make([]string, 0, len(servers))
	for _, server := range servers {
		settings := map[string]string{"lease": lease, "lease-key": key, "pool-name": server.Name}
		if server.Fingerprint != nil {
			settings["tls-fingerprint"] = *server.Fingerprint
		}
		own[server.Address] = settings
		addresses = append(addresses, server.Address)
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	found := []string{
		"OUTBOARD_SERVER=" + strings.Join(addresses, ","),
		"OUTBOARD_SERVERS=" + string(text),
		"OUTBOARD_LEASE=" + lease,
		"OUTBOARD_LEASE_KEY=" + key,
	}
	if len(servers) > 1 {
		found = append(found, "OUTBOARD_SAY_LOST=1")
	}
	return found, nil
}

func mount(host, inside string) *specs.Mount {
	return &specs.Mount{
		HostPath: host, ContainerPath: inside,
		Options: []string{"ro", "nosuid", "nodev", "bind"},
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
