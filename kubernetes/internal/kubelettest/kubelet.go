// Package kubelettest speaks the kubelet's side of its protocol with plug-ins.
package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"outboard.dev/dra/internal/names"
	"outboard.dev/dra/internal/pooltest"
)

// Kubelet knows a plug-in that has registered.
type Kubelet struct{ plugin drapb.DRAPluginClient }

func dial(t testing.TB, socket string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("unix:"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// Register waits for the driver's plug-in in the kubelet's folder, and registers it.
func Register(t testing.TB, folder string) *Kubelet {
	t.Helper()
	socket := filepath.Join(folder, "plugins_registry", names.Driver+"-reg.sock")
	registration := registerapi.NewRegistrationClient(dial(t, socket))
	var info *registerapi.PluginInfo
	pooltest.Within(t, "the plug-in says what it is", func() (err error) {
		info, err = registration.GetInfo(t.Context(), &registerapi.InfoRequest{})
		return err
	})
	if info.Type != registerapi.DRAPlugin || info.Name != names.Driver ||
		!slices.Contains(info.SupportedVersions, drapb.DRAPluginService) {
		t.Fatalf("it is no such plug-in: %v", info)
	}
	_, err := registration.NotifyRegistrationStatus(
		t.Context(), &registerapi.RegistrationStatus{PluginRegistered: true})
	if err != nil {
		t.Fatal(err)
	}
	return &Kubelet{drapb.NewDRAPluginClient(dial(t, info.Endpoint))}
}

func named(claim *resourceapi.ResourceClaim) []*drapb.Claim {
	return []*drapb.Claim{
		{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)},
	}
}

// Prepare has a claim prepared, and gives the CDI devices of a container that uses all of it.
func (k *Kubelet) Prepare(
	ctx context.Context, claim *resourceapi.ResourceClaim,
) ([]string, error) {
	answer, err := k.plugin.NodePrepareResources(
		ctx, &drapb.NodePrepareResourcesRequest{Claims: named(claim)})
	if err != nil {
		return nil, err
	}
	found := answer.Claims[string(claim.UID)]
	if found == nil {
		return nil, fmt.Errorf("there is no answer for claim %s", claim.UID)
	}
	if found.Error != "" {
		return nil, errors.New(found.Error)
	}
	var devices []string
	for _, device := range found.Devices {
		devices = append(devices, device.CdiDeviceIds...)
	}
	return devices, nil
}

// Unprepare has a claim unprepared.
func (k *Kubelet) Unprepare(
	ctx context.Context, claim *resourceapi.ResourceClaim,
) error {
	answer, err := k.plugin.NodeUnprepareResources(
		ctx, &drapb.NodeUnprepareResourcesRequest{Claims: named(claim)})
	if err != nil {
		return err
	}
	if found := answer.Claims[string(claim.UID)]; found == nil || found.Error != "" {
		return fmt.Errorf("claim %s: %v", types.UID(claim.UID), found)
	}
	return nil
}
