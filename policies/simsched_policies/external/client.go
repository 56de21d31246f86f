// A scheduler for simsched in Go: shortest remaining time first, with backfill. It speaks the protocol of
// docs/external.md on its standard streams, and needs only the standard library: go build -o client client.go
package main

import "encoding/json"
import "os"
import "sort"

type job struct { // a request, and where it runs: GPUs by node, all of one kind; need is how many it lacks
	ID, kind, held string
	GPUs           int `json:"num_gpus"`
	turn, need     int
	left           float64
	at             [][2]int
}

type message struct { // the fields of hello and decide that this scheduler reads, with the names of the page
	Type           string
	Nodes          [][3]any
	Arrived        []*job
	Finished, Lost []string
	Free           [][2]int
	Told           map[string][1]float64
}

var free, kinds, jobs = []int{}, []string{}, map[string]*job{} // free GPUs before the decision, and kinds, by node

// decide runs the jobs with the least work left that fit; who runs stays, the others go around them.
func decide() (decision map[string][][2]int, names []string) {
	order, room, left := []*job{}, map[string]int{}, append([]int{}, free...)
	decision = map[string][][2]int{}
	for node, kind := range kinds {
		room[kind] += free[node]
	}
	for _, one := range jobs {
		order = append(order, one)
		room[one.kind] += one.GPUs - one.need
	}
	sort.Slice(order, func(i, j int) bool { return order[i].turn < order[j].turn })
	sort.SliceStable(order, func(i, j int) bool { return order[i].left < order[j].left })
	for _, one := range order {
		names, one.held, one.kind = append(names, one.ID), one.kind, ""
		for _, kind := range kinds { // the first with room, or the one that the job has
			if one.kind == "" && room[kind] >= one.GPUs && (one.need > 0 || one.held == kind) {
				one.kind = kind
				room[kind] -= one.GPUs
			}
		}
		for ; one.kind == "" && one.need < one.GPUs; one.at = one.at[1:] {
			left[one.at[0][0]] += one.at[0][1]
			one.need += one.at[0][1]
			decision[one.ID] = [][2]int{}
		}
	}
	for _, one := range order {
		for most := 0; one.kind != "" && one.need > 0; decision[one.ID] = one.at {
			for node := range left { // the node with the most free GPUs, the first of equals
				if kinds[node] == one.kind && (kinds[most] != one.kind || left[node] > left[most]) {
					most = node
				}
			}
			given := []int{one.need, left[most]}
			sort.Ints(given)
			one.at = append(one.at, [2]int{most, given[0]})
			one.need, left[most] = one.need-given[0], left[most]-given[0]
		}
	}
	return
}
func main() {
	in, out, turn := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout), 0
	for said := new(message); in.Decode(said) == nil; said = new(message) {
		for _, run := range said.Nodes { // in hello: how many, GPUs of each, their kind
			for many := run[0].(float64); many > 0; many-- {
				free, kinds = append(free, int(run[1].(float64))), append(kinds, run[2].(string))
			}
		}
		for _, one := range said.Arrived {
			turn, one.turn, one.need, jobs[one.ID] = turn+1, turn, one.GPUs, one
		}
		for _, name := range said.Finished {
			delete(jobs, name)
		}
		for _, name := range said.Lost {
			jobs[name].need, jobs[name].at = jobs[name].GPUs, nil
		}
		for _, pair := range said.Free {
			free[pair[0]] = pair[1]
		}
		for name, signals := range said.Told {
			jobs[name].left = signals[0]
		}
		if said.Type == "hello" {
			out.Encode(map[string]any{"type": "ready", "version": 1})
		} else if said.Type == "decide" {
			actions, order := decide() // the order in which actions are carried out: an object has none
			out.Encode(map[string]any{"type": "decision", "jobs": actions, "order": order})
		}
	}
}
