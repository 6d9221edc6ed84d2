"""What moves step by step: orbits, oscillators, populations, prices, random walks."""

import math

import numpy as np

SIZES = {
    "lorenz_rows": 39_000,
    "lorenz_numbers": 200_000,
    "runge_kutta": 200_000,
    "runge_kutta_rows": 14_000,
    "euler_by_append": 520_000,
    "pendulum": 910_000,
    "bouncing_ball": 830_000,
    "orbit": 290_000,
    "nbody_rows": 40,
    "nbody_elements": 60,
    "nbody_objects": 5000,
    "lotka_volterra": 150_000,
    "epidemic": 150_000,
    "logistic_map": 3200,
    "henon_map": 880_000,
    "random_walk": 740_000,
    "walk_on_a_grid": 200_000,
    "price_paths": 5200,
    "garch": 230_000,
    "kalman": 290_000,
    "leapfrog_with_temporaries": 31_000,
    "spring_chain": 2800,
}


def _lorenz(xyz, *, s=10, r=28, b=2.667):
    x, y, z = xyz
    x_dot = s * (y - x)
    y_dot = r * x - y - x * z
    z_dot = x * y - b * z
    return np.array([x_dot, y_dot, z_dot])


def lorenz_rows(n):
    dt = 0.01
    xyzs = np.empty((n + 1, 3))
    xyzs[0] = (0.0, 1.0, 1.05)
    for i in range(n):
        xyzs[i + 1] = xyzs[i] + _lorenz(xyzs[i]) * dt
    return xyzs


def _slopes(x, y, z, s=10.0, r=28.0, b=8.0 / 3.0):
    return s * (y - x), r * x - y - x * z, x * y - b * z


def lorenz_numbers(n):
    dt = 0.005
    xs, ys, zs = np.empty(n + 1), np.empty(n + 1), np.empty(n + 1)
    xs[0], ys[0], zs[0] = 0.0, 1.0, 1.05
    for i in range(n):
        x_dot, y_dot, z_dot = _slopes(xs[i], ys[i], zs[i])
        xs[i + 1] = xs[i] + x_dot * dt
        ys[i + 1] = ys[i] + y_dot * dt
        zs[i + 1] = zs[i] + z_dot * dt
    return xs, ys, zs


def _decay(t, y):
    return -2.0 * y + math.cos(t)


def runge_kutta(n):
    h = 10.0 / n
    t, y = 0.0, 1.0
    for _ in range(n):
        k1 = _decay(t, y)
        k2 = _decay(t + h / 2, y + h * k1 / 2)
        k3 = _decay(t + h / 2, y + h * k2 / 2)
        k4 = _decay(t + h, y + h * k3)
        y += h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
        t += h
    return y


def _oscillator(t, y):
    return np.array([y[1], -y[0] - 0.1 * y[1]])


def runge_kutta_rows(n):
    h = 20.0 / n
    y = np.zeros((n + 1, 2))
    y[0] = 1.0, 0.0
    for i in range(n):
        t = i * h
        k1 = _oscillator(t, y[i])
        k2 = _oscillator(t + h / 2, y[i] + h * k1 / 2)
        k3 = _oscillator(t + h / 2, y[i] + h * k2 / 2)
        k4 = _oscillator(t + h, y[i] + h * k3)
        y[i + 1] = y[i] + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


def euler_by_append(n):
    dt = 1e-4
    t, v, y = 0.0, 0.0, 100.0
    times, heights = [], []
    for _ in range(n):
        times.append(t)
        heights.append(y)
        a = -9.81 - 0.1 * v * abs(v)
        v += a * dt
        y += v * dt
        t += dt
    return np.array(times), np.array(heights)


class Pendulum:
    def __init__(self, length=1.0, angle=1.0):
        self.length = length
        self.angle = angle
        self.speed = 0.0
        self.g = 9.81

    def run(self, n, dt):
        angles = np.empty(n)
        for i in range(n):
            self.speed += -self.g / self.length * math.sin(self.angle) * dt
            self.angle += self.speed * dt
            angles[i] = self.angle
        return angles


def pendulum(n):
    return Pendulum().run(n, 1e-3)


def bouncing_ball(n):
    y, v, dt = 1.0, 0.0, 1e-4
    bounces = 0
    heights = np.zeros(n)
    for i in range(n):
        v -= 9.81 * dt
        y += v * dt
        if y < 0:
            y = -y
            v = -0.9 * v
            bounces += 1
        heights[i] = y
    return heights, bounces


def orbit(n):
    x, y, vx, vy = 1.0, 0.0, 0.0, 1.0
    dt = 0.001
    path = np.zeros((n, 2))
    for i in range(n):
        r3 = (x**2 + y**2) ** 1.5
        vx -= x / r3 * dt
        vy -= y / r3 * dt
        x += vx * dt
        y += vy * dt
        path[i] = x, y
    return path


def nbody_rows(n):
    random = np.random.default_rng(1)
    pos, vel, mass = random.random((n, 3)), np.zeros((n, 3)), random.random(n)
    for _ in range(20):
        acc = np.zeros((n, 3))
        for i in range(n):
            for j in range(n):
                if i != j:
                    r = pos[j] - pos[i]
                    acc[i] += mass[j] * r / (np.sqrt(np.sum(r**2)) ** 3 + 0.01)
        vel += acc * 0.001
        pos += vel * 0.001
    return pos


def nbody_elements(n):
    random = np.random.default_rng(2)
    pos, vel, mass = random.random((n, 3)), np.zeros((n, 3)), random.random(n)
    dt = 0.001
    for _ in range(20):
        for i in range(n):
            for j in range(i + 1, n):
                dx = pos[i, 0] - pos[j, 0]
                dy = pos[i, 1] - pos[j, 1]
                dz = pos[i, 2] - pos[j, 2]
                mag = dt / ((dx * dx + dy * dy + dz * dz + 0.01) ** 1.5)
                vel[i, 0] -= dx * mass[j] * mag
                vel[i, 1] -= dy * mass[j] * mag
                vel[i, 2] -= dz * mass[j] * mag
                vel[j, 0] += dx * mass[i] * mag
                vel[j, 1] += dy * mass[i] * mag
                vel[j, 2] += dz * mass[i] * mag
        for i in range(n):
            for k in range(3):
                pos[i, k] += dt * vel[i, k]
    return pos


class Body:
    def __init__(self, position, velocity, mass):
        self.position, self.velocity, self.mass = position, velocity, mass


def nbody_objects(n):
    bodies = [
        Body(np.array([float(k), 0.0]), np.array([0.0, 1.0 / (k + 1)]), 1.0 / (k + 1))
        for k in range(3)
    ]
    for _ in range(n):
        for a in bodies:
            force = np.zeros(2)
            for b in bodies:
                if a is not b:
                    d = b.position - a.position
                    force += b.mass * d / (d @ d + 0.1) ** 1.5
            a.velocity += force * 0.001
        for a in bodies:
            a.position += a.velocity * 0.001
    return [a.position for a in bodies]


def lotka_volterra(n):
    dt = 1e-3
    prey, hunters = np.zeros(n), np.zeros(n)
    prey[0], hunters[0] = 10.0, 5.0
    for i in range(n - 1):
        prey[i + 1] = prey[i] + dt * (1.1 * prey[i] - 0.4 * prey[i] * hunters[i])
        hunters[i + 1] = hunters[i] + dt * (0.1 * prey[i] * hunters[i] - 0.4 * hunters[i])
    return prey, hunters


def epidemic(n, beta=0.3, gamma=0.1):
    s, i, r = np.empty(n), np.empty(n), np.empty(n)
    s[0], i[0], r[0] = 0.99, 0.01, 0.0
    dt = 200 / n
    for t in range(1, n):
        new = beta * s[t - 1] * i[t - 1] * dt
        healed = gamma * i[t - 1] * dt
        s[t] = s[t - 1] - new
        i[t] = i[t - 1] + new - healed
        r[t] = r[t - 1] + healed
    return s, i, r


def logistic_map(n):
    result = np.empty((n, 50))
    for k, r in enumerate(np.linspace(2.5, 4.0, n)):
        x = 0.5
        for _ in range(200):
            x = r * x * (1 - x)
        for i in range(50):
            x = r * x * (1 - x)
            result[k, i] = x
    return result


def henon_map(n, a=1.4, b=0.3):
    x, y = 0.0, 0.0
    points = np.zeros((n, 2))
    for i in range(n):
        x, y = 1 - a * x * x + y, b * x
        points[i, 0] = x
        points[i, 1] = y
    return points


def random_walk(n):
    steps = np.random.default_rng(3).random(n)
    place, farthest = 0, 0
    visits = np.zeros(201, dtype=int)
    for step in steps:
        place += 1 if step < 0.5 else -1
        farthest = max(farthest, abs(place))
        if -100 <= place <= 100:
            visits[place + 100] += 1
    return farthest, visits


def walk_on_a_grid(n):
    directions = np.random.default_rng(4).integers(0, 4, n)
    moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
    path = np.zeros((n + 1, 2), dtype=int)
    for i in range(n):
        path[i + 1] = path[i] + moves[directions[i]]
    return path


def price_paths(n):
    random = np.random.default_rng(5)
    total = 0.0
    for _ in range(n):
        price = 100.0
        highest = price
        for z in random.standard_normal(100):
            price *= math.exp(0.0001 + 0.02 * z)
            highest = max(highest, price)
        total += max(highest - price, 0.0)
    return total / n


def garch(n):
    z = np.random.default_rng(6).standard_normal(n)
    omega, alpha, beta = 0.1, 0.1, 0.8
    r, variance = np.zeros(n), np.zeros(n)
    variance[0] = omega / (1 - alpha - beta)
    for t in range(1, n):
        variance[t] = omega + alpha * r[t - 1] ** 2 + beta * variance[t - 1]
        r[t] = z[t] * np.sqrt(variance[t])
    return r, variance


def kalman(n):
    measured = np.random.default_rng(7).normal(5.0, 1.0, n)
    q, r = 1e-5, 0.1**2
    estimate, error = np.zeros(n), np.zeros(n)
    estimate[0], error[0] = 0.0, 1.0
    for k in range(1, n):
        predicted = estimate[k - 1]
        p = error[k - 1] + q
        gain = p / (p + r)
        estimate[k] = predicted + gain * (measured[k] - predicted)
        error[k] = (1 - gain) * p
    return estimate, error


def leapfrog_with_temporaries(n):
    position = np.array([1.0, 0.0, 0.0])
    velocity = np.array([0.0, 1.0, 0.1])
    energy = np.zeros(n)
    for i in range(n):
        force = np.zeros(3)
        r = np.linalg.norm(position)
        for k in range(3):
            force[k] = -position[k] / r**3
        velocity = velocity + 0.001 * force
        position = position + 0.001 * velocity
        energy[i] = 0.5 * np.dot(velocity, velocity) - 1 / r
    return energy, position


def spring_chain(n):
    x = np.arange(100, dtype=float)
    x[50] += 0.5
    v = np.zeros(100)
    for _ in range(n):
        for i in range(1, 99):
            v[i] += 0.01 * (x[i - 1] - 2 * x[i] + x[i + 1])
        for i in range(100):
            x[i] += v[i]
    return x
