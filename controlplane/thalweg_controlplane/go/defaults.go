package main

import (
	"context"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
)

// A defaultsAnswer is what kube-scheduler does where its configuration says nothing. Fields have the names and the
// values of a configuration file.
type defaultsAnswer struct {
	Configuration map[string]any            `json:"configuration"`
	Plugins       []defaultPlugin           `json:"plugins"`   // of the one profile, in their order
	Arguments     map[string]map[string]any `json:"arguments"` // plugin -> field -> value
	Gates         map[string]defaultGate    `json:"gates"`     // all of Kubernetes, not the scheduler's alone
}

type defaultPlugin struct {
	Name   string `json:"name"`
	Weight int32  `json:"weight"` // of its scores; 0: it has none
}

type defaultGate struct {
	Enabled bool   `json:"enabled"`
	Stage   string `json:"stage"` // ALPHA, BETA, DEPRECATED; "": generally available
}

func (o *oracle) defaults() (defaultsAnswer, error) {
	answer := defaultsAnswer{Arguments: map[string]map[string]any{}, Gates: map[string]defaultGate{}}
	var err error
	if answer.Configuration, err = configured(o.config); err != nil {
		return answer, err
	}
	// Their values say nothing here: the profile is what plugins and arguments say, and nobody is asked beside it.
	for _, name := range []string{"profiles", "extenders"} {
		answer.Configuration[name] = nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Weights that the profile leaves open are the framework's to say.
	built, err := o.framework(ctx, internalcache.NewSnapshot(nil, nil), oracleCase{DeviceObjects: &deviceObjects{}}, "")
	if err != nil {
		return answer, err
	}
	weights := map[string]int32{}
	for _, plugin := range built.ListPlugins().Score.Enabled {
		weights[plugin.Name] = plugin.Weight
	}
	for _, plugin := range o.profile.Plugins.MultiPoint.Enabled {
		answer.Plugins = append(answer.Plugins, defaultPlugin{plugin.Name, weights[plugin.Name]})
	}
	for _, plugin := range o.profile.PluginConfig {
		if answer.Arguments[plugin.Name], err = configured(plugin.Args); err != nil {
			return answer, err
		}
	}
	for name, gate := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		answer.Gates[string(name)] = defaultGate{utilfeature.DefaultFeatureGate.Enabled(name), string(gate.PreRelease)}
	}
	return answer, nil
}

// configured are the fields of an object as a configuration file has them, those without a value too.
func configured(object runtime.Object) (map[string]any, error) {
	versioned, err := scheme.Scheme.ConvertToVersion(object, configv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	fields, value := map[string]any{}, reflect.Indirect(reflect.ValueOf(versioned))
	for at := range value.NumField() {
		// Fields of an embedded struct are without a name: the kind, and the profiler's.
		if name, _, _ := strings.Cut(value.Type().Field(at).Tag.Get("json"), ","); name != "" {
			fields[name] = value.Field(at).Interface()
		}
	}
	return fields, nil
}
