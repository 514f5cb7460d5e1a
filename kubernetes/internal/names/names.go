// Package names has the words that the cluster knows Outboard by.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// Driver is the name of the driver, and the domain of its attributes.
	Driver = "outboard.dev"
	// Leased is the condition for which the scheduler waits before it binds a pod.
	Leased = "outboard.dev/leased"
	// Refused is the condition by which the scheduler learns to choose again.
	Refused = "outboard.dev/refused"
	// LabelDomain is the domain of attributes that are labels of a server.
	LabelDomain = "label.outboard.dev"
	// Memory is what a claim consumes of a device's memory, in bytes.
	Memory = resourceapi.QualifiedName("memory")
	// Multiprocessors is what a claim consumes of a device's multiprocessors, in percent.
	Multiprocessors = resourceapi.QualifiedName("multiprocessors")
)

// Device is the name of a device in its pool: one for each UUID.
func Device(uuid string) string {
	if rest, found := strings.CutPrefix(uuid, "GPU-"); found {
		name := "gpu-" + rest
		if len(validation.IsDNS1123Label(name)) == 0 {
			return name
		}
	}
	return "uuid-" + digest(uuid)
}

// Pool is the name of a server's pool: one for each server.
func Pool(server string) string {
	isName := len(validation.IsDNS1123Subdomain(server)) == 0
	// It is an attribute's value, too.
	isShort := len(server) <= resourceapi.DeviceAttributeMaxValueLength
	if isName && isShort && !strings.HasPrefix(server, "server-") {
		return server
	}
	return "server-" + digest(server)
}

// Label is the attribute for the key of a server's label.
func Label(key string) resourceapi.QualifiedName {
	name := strings.Map(func(letter rune) rune {
		switch {
		case letter >= 'a' && letter <= 'z', letter >= 'A' && letter <= 'Z',
			letter >= '0' && letter <= '9':
			return letter
		default:
			return '_'
		}
	}, key)
	if name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	name = name[:min(len(name), resourceapi.DeviceMaxIDLength)]
	return resourceapi.QualifiedName(LabelDomain + "/" + name)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:20])
}
