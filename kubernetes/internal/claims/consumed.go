package claims

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"outboard.dev/dra/internal/names"
)

// consumed is the memory and the percents of multiprocessors that a result has.
func consumed(
	result *resourceapi.DeviceRequestAllocationResult,
) (memory, percents resource.Quantity) {
	return of(result, names.Memory), of(result, names.Multiprocessors)
}

func of(
	result *resourceapi.DeviceRequestAllocationResult, name resourceapi.QualifiedName,
) resource.Quantity {
	if found, isThere := result.ConsumedCapacity[name]; isThere {
		return found
	}
	return result.ConsumedCapacity[resourceapi.QualifiedName(names.Driver+"/")+name]
}
