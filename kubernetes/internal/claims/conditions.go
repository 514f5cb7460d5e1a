package claims

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/dra/internal/names"
)

// Reasons of conditions.
const (
	ReasonGranted = "Granted"
	ReasonWaiting = "Waiting"
	ReasonAway    = "BrokerAway"
	ReasonRefused = "Refused"
	ReasonEnded   = "Ended"
)

// Say is what the cluster is to be told of a claim's lease.
type Say struct {
	Leased  bool
	Refused bool
	Reason  string
	Message string
}

// Told is what the cluster has been told of a claim's devices: the reason, and whether all of them
// are leased.
func Told(claim *resourceapi.ResourceClaim) (reason string, isLeased bool) {
	isLeased = true
	for _, result := range Ours(claim) {
		status := statusOf(claim.Status.Devices, &result)
		if status == nil {
			return "", false
		}
		condition := meta.FindStatusCondition(status.Conditions, names.Leased)
		if condition == nil {
			return "", false
		}
		reason = condition.Reason
		isLeased = isLeased && condition.Status == metav1.ConditionTrue
	}
	return reason, isLeased
}

// Apply writes it into the claim's status, and says whether that changed anything.
func Apply(claim *resourceapi.ResourceClaim, say Say) bool {
	changed := false
	for _, result := range Ours(claim) {
		status := statusOf(claim.Status.Devices, &result)
		if status == nil {
			claim.Status.Devices = append(claim.Status.Devices, newStatus(&result))
			status = &claim.Status.Devices[len(claim.Status.Devices)-1]
			changed = true
		}
		for name, isSo := range map[string]bool{
			names.Leased: say.Leased, names.Refused: say.Refused,
		} {
			condition := metav1.Condition{
				Type: name, Status: metav1.ConditionFalse, Reason: say.Reason, Message: say.Message,
			}
			if isSo {
				condition.Status = metav1.ConditionTrue
			}
			changed = meta.SetStatusCondition(&status.Conditions, condition) || changed
		}
	}
	return changed
}

func newStatus(
	result *resourceapi.DeviceRequestAllocationResult,
) resourceapi.AllocatedDeviceStatus {
	status := resourceapi.AllocatedDeviceStatus{
		Driver: result.Driver, Pool: result.Pool, Device: result.Device,
	}
	if result.ShareID != nil {
		share := string(*result.ShareID)
		status.ShareID = &share
	}
	return status
}

func statusOf(
	all []resourceapi.AllocatedDeviceStatus, result *resourceapi.DeviceRequestAllocationResult,
) *resourceapi.AllocatedDeviceStatus {
	wanted := newStatus(result)
	at := slices.IndexFunc(all, func(status resourceapi.AllocatedDeviceStatus) bool {
		isSame := (status.ShareID == nil) == (wanted.ShareID == nil) &&
			(status.ShareID == nil || *status.ShareID == *wanted.ShareID)
		return isSame && status.Driver == wanted.Driver && status.Pool == wanted.Pool &&
			status.Device == wanted.Device
	})
	if at < 0 {
		return nil
	}
	return &all[at]
}
