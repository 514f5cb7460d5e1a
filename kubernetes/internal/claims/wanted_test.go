package claims

import (
	"errors"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"outboard.dev/dra/internal/broker"
	"outboard.dev/dra/internal/names"
)

var pool = &broker.Pool{Servers: []broker.Server{{
	Name: "gpu1", Devices: []broker.Device{
		{UUID: "GPU-a", Memory: 80 << 30}, {UUID: "GPU-b", Memory: 40 << 30},
	},
}}}

func result(device, memory, percents string) resourceapi.DeviceRequestAllocationResult {
	found := resourceapi.DeviceRequestAllocationResult{
		Driver: names.Driver, Pool: "gpu1", Device: device,
	}
	if memory != "" {
		found.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{
			names.Memory:          resource.MustParse(memory),
			names.Multiprocessors: resource.MustParse(percents),
		}
	}
	return found
}

func TestWhatTheBrokerIsAskedFor(t *testing.T) {
	shared := func(percent uint8) broker.Usage { return broker.Usage{Percent: percent} }
	whole := broker.Usage{Exclusive: true, Percent: 100}
	for what, one := range map[string]struct {
		results []resourceapi.DeviceRequestAllocationResult
		devices int
		memory  uint64
		usage   broker.Usage
	}{
		"a part": {[]resourceapi.DeviceRequestAllocationResult{
			result("gpu-a", "8Gi", "25"),
		}, 1, 8 << 30, shared(25)},
		"all of it": {[]resourceapi.DeviceRequestAllocationResult{
			result("gpu-a", "80Gi", "100"),
		}, 1, 80 << 30, whole},
		"all multiprocessors": {[]resourceapi.DeviceRequestAllocationResult{
			result("gpu-a", "79Gi", "100"),
		}, 1, 79 << 30, shared(100)},
		"no capacity is known": {[]resourceapi.DeviceRequestAllocationResult{
			result("gpu-b", "", ""),
		}, 1, 40 << 30, whole},
		"two of different sizes": {[]resourceapi.DeviceRequestAllocationResult{
			result("gpu-a", "80Gi", "100"), result("gpu-b", "40Gi", "100"),
		}, 2, 40 << 30, whole},
		"two parts of one": {[]resourceapi.DeviceRequestAllocationResult{
			result("gpu-a", "8Gi", "25"), result("gpu-a", "1Gi", "5"),
		}, 1, 9 << 30, shared(30)},
	} {
		found, err := Wanted(pool, one.results)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		} else if found.Devices != one.devices || len(found.Only) != one.devices ||
			found.Memory != one.memory || found.Usage != one.usage {
			t.Errorf("%s: %+v", what, found)
		}
	}
}

func TestWhatCannotBeAskedFor(t *testing.T) {
	admin := result("gpu-a", "", "")
	admin.AdminAccess = ptr.To(true)
	for want, results := range map[string][]resourceapi.DeviceRequestAllocationResult{
		"different parts": {result("gpu-a", "8Gi", "25"), result("gpu-b", "8Gi", "50")},
		"adminAccess":     {admin},
		"not in the pool": {result("gpu-c", "8Gi", "25")},
	} {
		found, err := Wanted(pool, results)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v", want, found, err)
		}
	}
	_, err := Wanted(pool, []resourceapi.DeviceRequestAllocationResult{result("gpu-c", "", "")})
	if !errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
}

func TestAnotherAllocationIsAnotherPurpose(t *testing.T) {
	claim := func(results ...resourceapi.DeviceRequestAllocationResult) *resourceapi.ResourceClaim {
		return &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{UID: "uid"},
			Status: resourceapi.ResourceClaimStatus{Allocation: &resourceapi.AllocationResult{
				Devices: resourceapi.DeviceAllocationResult{Results: results},
			}},
		}
	}
	first := Purpose("cluster", claim(result("gpu-a", "8Gi", "25")))
	if !strings.HasPrefix(first, "cluster.uid.") || len(first) > 128 {
		t.Errorf("the purpose is %s", first)
	}
	if again := Purpose("cluster", claim(result("gpu-a", "8192Mi", "25"))); again != first {
		t.Errorf("the same is %s, and then %s", first, again)
	}
	for _, other := range []resourceapi.DeviceRequestAllocationResult{
		result("gpu-b", "8Gi", "25"), result("gpu-a", "9Gi", "25"), result("gpu-a", "8Gi", "26"),
	} {
		if Purpose("cluster", claim(other)) == first {
			t.Errorf("%+v has the same purpose", other)
		}
	}
	others := result("gpu-a", "8Gi", "25")
	others.Driver = "gpu.example.com"
	if found := Purpose("cluster", claim(others)); found != "" {
		t.Errorf("devices of another driver have the purpose %s", found)
	}
	if found := Purpose("cluster", nil); found != "" {
		t.Errorf("no claim has the purpose %s", found)
	}
}
