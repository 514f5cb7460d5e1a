// Package node prepares claims for the containers of a node.
package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"outboard.dev/dra/internal/claims"
	"outboard.dev/dra/internal/handover"
)

// Leases is who has the leases of this node's claims.
type Leases interface {
	Claim(ctx context.Context, uid types.UID) (*handover.Handover, error)
}

// Plugin is what the kubelet asks.
type Plugin struct {
	leases  Leases
	folders Folders
	spec    *Specifications
	stop    context.CancelCauseFunc
}

// NewPlugin makes one; stop ends the program if it can go on no more.
func NewPlugin(
	leases Leases, folders Folders, spec *Specifications, stop context.CancelCauseFunc,
) *Plugin {
	return &Plugin{leases, folders, spec, stop}
}

// PrepareResourceClaims makes what containers get with each claim.
func (p *Plugin) PrepareResourceClaims(
	ctx context.Context, all []*resourceapi.ResourceClaim,
) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make(map[types.UID]kubeletplugin.PrepareResult, len(all))
	for _, claim := range all {
		devices, err := p.prepare(ctx, claim)
		results[claim.UID] = kubeletplugin.PrepareResult{Devices: devices, Err: err}
	}
	return results, nil
}

func (p *Plugin) prepare(
	ctx context.Context, claim *resourceapi.ResourceClaim,
) ([]kubeletplugin.Device, error) {
	found, err := p.leases.Claim(ctx, claim.UID)
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", klog.KObj(claim), err)
	}
	folder, err := p.folders.Put(claim.UID, found)
	if err != nil {
		return nil, err
	}
	id, err := p.spec.Put(claim.UID, folder, found)
	if err != nil {
		return nil, err
	}
	devices := make([]kubeletplugin.Device, 0, len(claims.Ours(claim)))
	for at, result := range claims.Ours(claim) {
		device := kubeletplugin.Device{
			Requests: []string{result.Request},
			PoolName: result.Pool, DeviceName: result.Device, ShareID: result.ShareID,
		}
		if at == 0 {
			// One lease has all devices of the claim: every container gets it, and gets it once.
			device.Requests, device.CDIDeviceIDs = nil, []string{id}
		}
		devices = append(devices, device)
	}
	klog.FromContext(ctx).Info("a claim is prepared",
		"claim", klog.KObj(claim), "lease", found.Number)
	return devices, nil
}

// UnprepareResourceClaims removes what containers got.
func (p *Plugin) UnprepareResourceClaims(
	_ context.Context, all []kubeletplugin.NamespacedObject,
) (map[types.UID]error, error) {
	results := make(map[types.UID]error, len(all))
	for _, claim := range all {
		results[claim.UID] = errors.Join(p.spec.Remove(claim.UID), p.folders.Remove(claim.UID))
	}
	return results, nil
}

// HandleError ends the program if it cannot go on.
func (p *Plugin) HandleError(ctx context.Context, err error, message string) {
	runtime.HandleErrorWithContext(ctx, err, message)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		p.stop(fmt.Errorf("%s: %w", message, err))
	}
}

// WatchHealthStatus says nothing: taints of the devices say what is ill.
func (p *Plugin) WatchHealthStatus(
	context.Context, chan<- kubeletplugin.DeviceHealthReport,
) error {
	return kubeletplugin.ErrHealthNotSupported
}

// KeepFresh brings renewed leases to the claims that are prepared: a program that starts late in
// its container shows one that is good.
func (p *Plugin) KeepFresh(ctx context.Context, every time.Duration) {
	brought := map[types.UID]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		uids, err := p.folders.All()
		if err != nil {
			klog.FromContext(ctx).Error(err, "leases cannot be kept fresh")
		}
		for _, uid := range uids {
			found, err := p.leases.Claim(ctx, uid)
			if err == nil && brought[uid] != found.Lease {
				err = p.folders.Renew(uid, found)
			}
			if err != nil {
				klog.FromContext(ctx).Error(err, "a lease cannot be kept fresh", "claim", uid)
				continue
			}
			brought[uid] = found.Lease
		}
		maps.DeleteFunc(brought, func(uid types.UID, _ string) bool {
			return !slices.Contains(uids, uid)
		})
	}
}
