package slices_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/claims"
	"outboard.dev/dra/internal/names"
	"outboard.dev/dra/internal/slices"
)

// scheduler is the scheduler's own allocator, with what it has given out.
type scheduler struct {
	classes  classes
	slices   []*resourceapi.ResourceSlice
	state    structured.AllocatedState
	celCache *cel.Cache
}

var features = structured.Features{
	ConsumableCapacity: true, DeviceBindingAndStatus: true, DeviceTaints: true,
}

type classes map[string]*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return nil, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	if found := c[name]; found != nil {
		return found, nil
	}
	return nil, fmt.Errorf("there is no class %s", name)
}

// deployed are the classes of the deployment, as an administrator gets them.
func deployed(t *testing.T) classes {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/kubernetes/dra/classes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := classes{}
	for _, document := range strings.Split(string(text), "\n---\n") {
		class := new(resourceapi.DeviceClass)
		if err := yaml.UnmarshalStrict([]byte(document), class); err != nil {
			t.Fatal(err)
		}
		found[class.Name] = class
	}
	return found
}

func newScheduler(t *testing.T, pool *broker.Pool) *scheduler {
	t.Helper()
	s := &scheduler{
		classes:  deployed(t),
		celCache: cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}),
		state: structured.AllocatedState{
			AllocatedDevices:         sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
		},
	}
	s.see(pool)
	return s
}

// see publishes a pool, as the controller does.
func (s *scheduler) see(pool *broker.Pool) {
	s.slices = nil
	isOurs := func(lease *broker.Lease) bool { return lease.AskedBy == "kubernetes" }
	for name, described := range slices.Of(pool, nil, isOurs).Pools {
		for _, one := range described.Slices {
			s.slices = append(s.slices, &resourceapi.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: resourceapi.ResourceSliceSpec{
					Driver:   names.Driver,
					Pool:     resourceapi.ResourcePool{Name: name, ResourceSliceCount: 1},
					AllNodes: ptr.To(described.AllNodes),
					Devices:  one.Devices,
				},
			})
		}
	}
}

// give allocates a claim and remembers it; nil if the scheduler finds nothing.
func (s *scheduler) give(
	t *testing.T, claim *resourceapi.ResourceClaim,
) []resourceapi.DeviceRequestAllocationResult {
	t.Helper()
	allocator, err := structured.NewAllocator(
		t.Context(), features, s.state, s.classes, s.slices, s.celCache)
	if err != nil {
		t.Fatal(err)
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	found, err := allocator.Allocate(
		context.Background(), node, []*resourceapi.ResourceClaim{claim})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		return nil
	}
	results := found[0].Devices.Results
	for _, result := range results {
		id := structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
		if result.ShareID == nil {
			s.state.AllocatedDevices.Insert(id)
			continue
		}
		s.state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
		s.state.AggregatedCapacity.Insert(
			structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
	}
	return results
}

var number int

// wish changes a request.
type wish = func(*resourceapi.ExactDeviceRequest)

// claim is one for devices of a class.
func claim(count int64, wishes ...wish) *resourceapi.ResourceClaim {
	request := &resourceapi.ExactDeviceRequest{
		DeviceClassName: "outboard-gpu",
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           count,
	}
	for _, change := range wishes {
		change(request)
	}
	number++
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("claim-", number), Namespace: "default",
			UID: types.UID(fmt.Sprint("uid-", number)),
		},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: request}},
		}},
	}
}

func part(memory, percents string) wish {
	return func(request *resourceapi.ExactDeviceRequest) {
		request.DeviceClassName = "outboard-gpu-part"
		request.Capacity = &resourceapi.CapacityRequirements{
			Requests: map[resourceapi.QualifiedName]resource.Quantity{
				names.Memory:          resource.MustParse(memory),
				names.Multiprocessors: resource.MustParse(percents),
			},
		}
	}
}

func with(expression string) wish {
	return func(request *resourceapi.ExactDeviceRequest) {
		request.Selectors = []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: expression}},
		}
	}
}

// wanted is what the broker would be asked for.
func wanted(
	t *testing.T, pool *broker.Pool, results []resourceapi.DeviceRequestAllocationResult,
) *broker.Request {
	t.Helper()
	request, err := claims.Wanted(pool, results)
	if err != nil {
		t.Fatal(err)
	}
	return request
}
