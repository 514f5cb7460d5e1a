// Package claims reads what the scheduler has allocated.
package claims

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/names"
	"outboard.dev/dra/internal/slices"
)

// Ours are the devices of this driver that a claim has.
func Ours(claim *resourceapi.ResourceClaim) []resourceapi.DeviceRequestAllocationResult {
	if claim == nil || claim.Status.Allocation == nil || claim.DeletionTimestamp != nil &&
		len(claim.Status.ReservedFor) == 0 {
		return nil
	}
	var found []resourceapi.DeviceRequestAllocationResult
	for _, result := range claim.Status.Allocation.Devices.Results {
		if result.Driver == names.Driver {
			found = append(found, result)
		}
	}
	return found
}

// Purpose is what the broker calls the lease for what a claim has. Another allocation of the same
// claim is another purpose. Without devices of ours there is none.
func Purpose(cluster string, claim *resourceapi.ResourceClaim) string {
	type part struct {
		Pool, Device     string
		Memory, Percents string
	}
	results := Ours(claim)
	if len(results) == 0 {
		return ""
	}
	parts := make([]part, 0, len(results))
	for _, result := range results {
		memory, percents := consumed(&result)
		parts = append(parts, part{result.Pool, result.Device, memory.String(), percents.String()})
	}
	// Only texts: it cannot fail.
	text, _ := json.Marshal(parts)
	sum := sha256.Sum256(text)
	return fmt.Sprintf("%s%s.%s", Prefix(cluster), claim.UID, hex.EncodeToString(sum[:8]))
}

// Prefix is what the purposes of a cluster begin with.
func Prefix(cluster string) string { return cluster + "." }

// ErrGone says that a device is not in the pool now.
var ErrGone = errors.New("a device of the claim is not in the pool now")

// Wanted is what the broker is to be asked for.
func Wanted(
	pool *broker.Pool, results []resourceapi.DeviceRequestAllocationResult,
) (*broker.Request, error) {
	type sum struct {
		at              broker.Exact
		whole           uint64
		memory, percent uint64
	}
	var parts []sum
	for _, result := range results {
		if result.AdminAccess != nil && *result.AdminAccess {
			return nil, errors.New("devices of others cannot be used: leave adminAccess out")
		}
		server, device := find(pool, &result)
		if device == nil {
			return nil, fmt.Errorf("%w: %s of %s", ErrGone, result.Device, result.Pool)
		}
		whole := device.Memory / slices.Step * slices.Step
		part := sum{broker.Exact{Server: server.Name, Device: device.UUID}, whole, whole, broker.Whole}
		// A cluster that knows no consumable capacity gives out whole devices.
		if result.ConsumedCapacity != nil {
			memory, percent := consumed(&result)
			part.memory, part.percent = uint64(memory.Value()), uint64(percent.Value())
		}
		isNew := true
		for at := range parts {
			if parts[at].at == part.at {
				parts[at].memory += part.memory
				parts[at].percent += part.percent
				isNew = false
			}
		}
		if isNew {
			parts = append(parts, part)
		}
	}
	request := &broker.Request{Devices: len(parts), Servers: "any", MayShare: "same_key"}
	for at, part := range parts {
		isExclusive := part.memory >= part.whole && part.percent >= broker.Whole
		usage := broker.Usage{Exclusive: isExclusive, Percent: uint8(min(part.percent, broker.Whole))}
		memory := part.memory
		if at > 0 && isExclusive && usage == request.Usage {
			// Exclusive devices may differ: each is to have at least that much.
			memory = min(memory, request.Memory)
			request.Memory = memory
		}
		if at > 0 && (usage != request.Usage || memory != request.Memory) {
			return nil, errors.New("the claim has different parts of its devices: make a claim for " +
				"each, or ask for the same memory and multiprocessors of all")
		}
		request.Usage, request.Memory = usage, memory
		request.Only = append(request.Only, part.at)
	}
	return request, nil
}

func find(
	pool *broker.Pool, result *resourceapi.DeviceRequestAllocationResult,
) (*broker.Server, *broker.Device) {
	for at := range pool.Servers {
		server := &pool.Servers[at]
		if names.Pool(server.Name) != result.Pool {
			continue
		}
		for at := range server.Devices {
			if names.Device(server.Devices[at].UUID) == result.Device {
				return server, &server.Devices[at]
			}
		}
	}
	return nil, nil
}
