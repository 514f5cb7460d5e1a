// Package slices describes a pool to the scheduler.
package slices

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/names"
)

// Step is the unit in which memory of a device is consumed.
const Step = 1 << 20

// Of describes each server as a pool. Nodes are those from which the servers can be reached; nil
// means all. IsOurs tells the cluster's own leases, which the scheduler knows, from others, whose
// devices it must not give out.
func Of(
	pool *broker.Pool, nodes *v1.NodeSelector, isOurs func(*broker.Lease) bool,
) *resourceslice.DriverResources {
	foreign := takenBy(pool, isOurs)
	pools := make(map[string]resourceslice.Pool, len(pool.Servers))
	for _, server := range pool.Servers {
		devices := make([]resourceapi.Device, 0, len(server.Devices))
		for _, device := range server.Devices {
			taken := foreign[broker.Exact{Server: server.Name, Device: device.UUID}]
			devices = append(devices, describe(&server, &device, taken))
		}
		pools[names.Pool(server.Name)] = resourceslice.Pool{
			NodeSelector: nodes,
			AllNodes:     nodes == nil,
			// A server has at most 64 devices, which is what a slice may have.
			Slices: []resourceslice.Slice{{Devices: devices}},
		}
	}
	return &resourceslice.DriverResources{Pools: pools}
}

// part is what of a device is not there for the cluster.
type part struct {
	memory  uint64
	percent int
}

func takenBy(
	pool *broker.Pool, isOurs func(*broker.Lease) bool,
) map[broker.Exact]part {
	taken := map[broker.Exact]part{}
	for _, lease := range pool.Leases {
		if isOurs(&lease) {
			continue
		}
		for _, granted := range lease.Devices {
			at := broker.Exact{Server: granted.Server, Device: granted.Device}
			sum := taken[at]
			sum.memory += granted.Memory
			sum.percent += int(granted.Usage.Percent)
			taken[at] = sum
		}
	}
	return taken
}

func describe(server *broker.Server, device *broker.Device, taken part) resourceapi.Device {
	memory := (device.Memory - min(device.Memory, taken.memory)) / Step * Step
	percent := max(0, broker.Whole-taken.percent)
	taints := taintsOf(server, device)
	// The least that a range of values may have: its first value, and one more.
	if memory < 2*Step || percent < 2 {
		memory, percent = max(device.Memory/Step*Step, 2*Step), broker.Whole
		taints = append(taints, taint("leased-elsewhere", resourceapi.DeviceTaintEffectNoSchedule))
	}
	return resourceapi.Device{
		Name:       names.Device(device.UUID),
		Attributes: attributes(server, device, taken == part{}),
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			names.Memory: capacity(
				resource.NewQuantity(int64(memory), resource.BinarySI),
				resource.NewQuantity(Step, resource.BinarySI),
			),
			names.Multiprocessors: capacity(
				resource.NewQuantity(int64(percent), resource.DecimalSI),
				resource.NewQuantity(1, resource.DecimalSI),
			),
		},
		Taints:                   taints,
		BindsToNode:              ptr.To(false),
		BindingConditions:        []string{names.Leased},
		BindingFailureConditions: []string{names.Refused},
		AllowMultipleAllocations: ptr.To(true),
	}
}

// capacity is one of which a claim consumes what it says, and all if it says nothing.
func capacity(value, step *resource.Quantity) resourceapi.DeviceCapacity {
	return resourceapi.DeviceCapacity{
		Value: *value,
		RequestPolicy: &resourceapi.CapacityRequestPolicy{
			Default:    value,
			ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: step, Step: step},
		},
	}
}

func taintsOf(server *broker.Server, device *broker.Device) []resourceapi.DeviceTaint {
	var found []resourceapi.DeviceTaint
	switch server.Condition {
	case broker.Draining:
		found = append(found, taint("draining", resourceapi.DeviceTaintEffectNoSchedule))
	case broker.Silent:
		found = append(found, taint("silent", resourceapi.DeviceTaintEffectNoSchedule))
	}
	if device.Health == broker.Ill {
		found = append(found, taint("ill", resourceapi.DeviceTaintEffectNoExecute))
	}
	return found
}

func taint(why string, effect resourceapi.DeviceTaintEffect) resourceapi.DeviceTaint {
	return resourceapi.DeviceTaint{Key: names.Driver + "/" + why, Effect: effect}
}

// mostAttributes leaves room for the capacities, of the 32 that a device may have of both.
const mostAttributes = 30

func attributes(
	server *broker.Server, device *broker.Device, isWhole bool,
) map[resourceapi.QualifiedName]resourceapi.DeviceAttribute {
	found := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
		"model":      text(device.Model),
		"uuid":       text(device.UUID),
		"server":     text(names.Pool(server.Name)),
		"driver":     text(server.Driver),
		"capability": version(fmt.Sprintf("%d.%d.0", device.Capability.Major, device.Capability.Minor)),
		// Whether nobody outside the cluster has a part of it.
		"whole": {BoolValue: ptr.To(isWhole)},
	}
	if number := versionOf(server.Driver); number != "" {
		found["driverVersion"] = version(number)
	}
	// In order, so that the same ones are left out each time.
	for _, key := range slices.Sorted(maps.Keys(server.Labels)) {
		if len(found) < mostAttributes {
			found[names.Label(key)] = text(server.Labels[key])
		}
	}
	return found
}

func version(number string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{VersionValue: &number}
}

// text is an attribute; a longer text is cut.
func text(value string) resourceapi.DeviceAttribute {
	value = value[:min(len(value), resourceapi.DeviceAttributeMaxValueLength)]
	return resourceapi.DeviceAttribute{StringValue: &value}
}

var numbers = regexp.MustCompile(`^\d{1,9}(\.\d{1,9}){0,2}$`)

// versionOf gives a driver's version as one that can be compared: NVIDIA writes 570.86.05.
func versionOf(driver string) string {
	if !numbers.MatchString(driver) {
		return ""
	}
	parts := strings.Split(driver, ".")
	for at, number := range parts {
		parts[at] = strings.TrimLeft(number[:len(number)-1], "0") + number[len(number)-1:]
	}
	for len(parts) < 3 {
		parts = append(parts, "0")
	}
	return strings.Join(parts, ".")
}
